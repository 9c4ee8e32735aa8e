"""What people are shown of a value: sections of lines, items and tables. A terminal and a page print the same ones.

In: values of the other folders. Out: the parts of `parts`, without escapes, styles or markup.
Imports: `readable`, `plan`, `inspect`, `keys`, `swap`, `doctor`, `cleaner`; neither rich nor jinja2 nor click.

    parts         what a view consists of: lines, items, tables, sections
    keys          the keys of a log: classes of records, versions, ages, the keys and prefixes that take most
"""
