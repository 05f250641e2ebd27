"""The scripts and the style sheet of reports.  A package, so that wheels take its files along."""
