"""Groups dead letters that probably have one cause, into a table, a document and a page.

`masking` and `shapes` compute what letters have in common, `grouping` gives every letter its group
in Spark, `report` counts, and `page` draws. Dead letters are hostile input: every text is bounded,
and no part of a letter is executed or treated as markup. Reading changes nothing on the bus.
"""
