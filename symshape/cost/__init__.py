"""The cost of a traced program as formulas of its sizes: operations, bytes moved, peak memory; and
solving them.

``domain`` holds the symbols and guards of a trace. ``formula`` is a number as a term, evaluated by
compiled code and solved by ``solving``. ``op_costs`` asks the cost rules of ``meta_fns`` for each
node; ``cost`` adds them up, and ``growth`` gives their degrees. ``liveness`` follows the schedule,
and ``peak_memory`` takes its greatest moment.
"""
