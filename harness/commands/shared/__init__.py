"""What several commands use: one run or its earlier result, tables, lists, like beside like, questions."""
