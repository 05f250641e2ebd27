"""The tracer: runs a function on symbolic tensors and records every op that the function calls as a
program.

``capture`` makes attempts until one succeeds: ``restart`` holds their settings. An attempt is a
``run``. It records what the function reads besides its arguments (``state``), makes
``symbolic_arguments`` of the call, and calls the function in its ``traced_modes``, with everything
caught that would bypass an op (``intercept``). Then it assembles the graph, the ``outputs`` and the
guards. ``trace_errors`` puts errors in our words.

The ``mode`` hands each op to the ``tracer``. The tracer looks up the op's rule (``op_plans``),
splits its ``op_arguments`` into specs and values, lets the rule infer the outputs on ``symbolic``
sizes, and adds a node. What it shares with the other rooms is the ``trace_state``: steps, values,
questions, and real tensors (``lifting``). Sizes and numbers that depend on data are made in
``data``; ``autograd`` keeps gradients, hooks and checkpoints correct. Functions with a memo are
in ``memos``.

``torch.cond`` on data, loops and scans go to ``control_flow``. It traces their functions as
``subgraphs`` and records a node that runs them (``scans``), unless the attempt unrolls loops.

``from_graph`` makes a program without running anything: from a graph of AOTAutograd's, whose nodes
have their results in Dynamo's symbols (``fx_sizes``).
"""
