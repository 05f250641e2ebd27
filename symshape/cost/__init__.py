"""What a traced program costs, as formulas of its sizes: operations, bytes moved, memory at its peak; and solving them.

``domain`` is what a trace's formulas range over (symbols, guards); ``formula`` a number as a term, evaluated by
compiled code, solved by ``solving``; ``op_costs`` asks the cost rules of ``meta_fns`` for each node; ``cost`` adds them
up, with ``growth`` saying what grows how; ``liveness`` follows the schedule and ``peak_memory`` takes its greatest
moment.
"""
