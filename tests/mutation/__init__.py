"""Which changes of the code no test notices: ``make mutation``, README.md."""
