"""The report as a widget, on anywidget: for JupyterLab, Notebook 7, VS Code and Colab."""

from __future__ import annotations

import anywidget
import traitlets

from symshape.exploring.page import asset, script
from symshape.exploring.report_records import Report


class ReportWidget(anywidget.AnyWidget):
    """The widget that shows a report; all that it does happens in the browser."""

    _esm = script()
    _css = asset("report.css")
    data = traitlets.Dict().tag(sync=True)


def widget_of(report: Report) -> ReportWidget:
    """Return the widget that shows a report."""
    return ReportWidget(data=report.to_data())
