"""How a call becomes a program: the function runs on symbolic tensors, and every op that it calls is written down.

``capture`` is the walk: it records what the function reads besides its arguments (``state``), makes
``symbolic_arguments`` of the call, runs the function in its ``traced_modes`` with everything caught that would get past
an op (``intercept``), and puts together the graph, the ``outputs`` and the guards.  Each op comes through the ``mode``
to the ``tracer``, which looks up its rule (``op_plans``), takes its ``op_arguments`` apart, lets the rule infer the
outputs on ``symbolic`` sizes, and adds a node.  Rules of data-dependent ops make ``unknowns``; real tensors are given
values by ``lifting``; ``gradients`` keeps what autograd knows honest.

``torch.cond`` on data, loops and scans come to ``control_flow``, which has their functions traced as ``parts`` (those
of a scan by ``rows``, of an associative one by ``levels``) and writes down a node that runs them; ``written_out`` says
when it does not.

``from_fx`` makes a program without running anything: of a graph of AOTAutograd's, whose nodes know their results in
Dynamo's symbols (``fx_sizes``, ``torch_expressions``).
"""
