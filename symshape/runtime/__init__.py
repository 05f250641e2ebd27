"""The recompile cache: entries, dispatch, runners."""
