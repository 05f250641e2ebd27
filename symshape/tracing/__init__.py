"""The tracer: runs a function on symbolic tensors and records every op that the function calls as a
program.

``capture`` is the walk. It records what the function reads besides its arguments (``state``) and
makes ``symbolic_arguments`` of the call. ``run`` calls the function in its ``traced_modes``, with
everything caught that would bypass an op (``intercept``). Then ``capture`` assembles the graph, the
``outputs`` and the guards. ``trace_errors`` puts errors in our words.

The ``mode`` hands each op to the ``tracer``. The tracer looks up the op's rule (``op_plans``),
splits its ``op_arguments`` into specs and values, lets the rule infer the outputs on ``symbolic``
sizes, and adds a node. What it shares with the other rooms is the ``trace_state``: steps, values,
questions, and real tensors (``lifting``). Sizes and numbers that depend on data are made in
``data``; ``autograd`` keeps gradients, hooks and checkpoints correct. Functions with a memo have
the room ``memos``.

``torch.cond`` on data, loops and scans go to ``control_flow``. It traces their functions as
``subgraphs`` and records a node that runs them (``scan``, ``associative_scan``). ``restart`` says
when a loop is unrolled instead, and starts a trace again with other settings.

``from_graph`` makes a program without running anything: from a graph of AOTAutograd's, whose nodes
have their results in Dynamo's symbols (``fx_sizes``, ``torch_expressions``).
"""
