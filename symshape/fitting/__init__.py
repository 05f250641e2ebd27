"""``symshape.fits``: which sizes of a model fit into the memory of a device."""
