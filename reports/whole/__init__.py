"""The whole report: the list of its tables and figures, made in parallel and cached, judged, and shown on one page."""
