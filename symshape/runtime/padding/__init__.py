"""Padding: one program for a range of sizes, with each tensor at its capacity and repairs where
padding would show.

``region`` defines the sizes and the facts about them; ``emission`` collects the padded program, op
by op as the padding rules of ``meta_fns`` ask for it; ``transform`` walks a traced graph through
the rules, ``versions`` tracks the contents of tensors after writes in place; ``planning`` leaves
out the symbols that an op refuses; ``alignment`` makes products at sizes that kernels like;
``results`` returns the valid part of the outputs; ``report`` says how each symbol is padded;
``buckets`` chooses capacities.
"""
