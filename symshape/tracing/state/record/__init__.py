"""Recording of the state that a traced function reads: attributes, globals, containers, flags."""
