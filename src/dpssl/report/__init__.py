"""The run as a page to look at: report.html, from the files of a run folder. Loads no network."""

from dpssl.report.page import write_report

__all__ = ["write_report"]
