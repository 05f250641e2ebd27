"""One program for a range of sizes: every tensor at its capacity, repaired where padding would show, or a refusal.

``region`` says which sizes are meant and what is known of them; ``emission`` collects the padded program, op by op as
the padding rules of ``meta_fns`` ask for it; ``transform`` walks a traced graph through them, ``versions`` keeps what
tensors hold after writes in place; ``planning`` leaves out the symbols that an op refuses; ``alignment`` makes products
at sizes that kernels like; ``results`` has the valid part of what comes out; ``report`` says what came of each symbol;
``buckets`` chooses capacities.
"""
