"""The functions of `import harness`: what the commands do, with settings as keywords and results as objects."""
