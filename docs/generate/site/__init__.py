"""Builds the site: `python -m docs.generate.site`, or `make docs`.

`_sandbox` runs commands, `_executed` the blocks of a page that are to be run; `_gallery`, `_methods` and `_reference`
make pages from commands and code, `_pages` gathers all of them as the source of Sphinx and follows every link,
`_checks` reads the HTML that comes out. What is written by hand lies in `docs/site` and `docs`.
"""
