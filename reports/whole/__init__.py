"""The whole report: which tables and figures there are, made once and in parallel, judged, on one page."""
