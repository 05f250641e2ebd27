"""Traces of graphs that others made: Dynamo's and AOTAutograd's."""
