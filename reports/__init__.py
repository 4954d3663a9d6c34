"""Tables and figures drawn from result files; nothing here runs a method."""
