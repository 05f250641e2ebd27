"""What users read, kept as text: each file here is made by one function of ``texts.py``.

``python -m tests.golden`` says which differ; with ``--write`` it writes them again. Read the
difference before that.
"""
