"""Dead letters in groups that probably have one cause, as a table, a document and a page.

`masking` and `shapes` say what letters have in common, `letters` applies them to rows in Spark,
`report` counts, and `page` draws. Dead letters are hostile input: every text is bounded, and
nothing of a letter is ever run or taken for markup. Reading changes nothing on the bus.
"""
