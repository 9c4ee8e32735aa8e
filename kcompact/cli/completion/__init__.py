"""What a shell offers when Tab is pressed.

In: the words typed so far. Out: lines that the function of a shell reads. Nothing is printed on standard error.
Imports: `config` and `format`, only when something is completed.

    shells   the functions for bash, zsh and fish, and what they exchange with kcompact
    values   the values of options: topics, partitions, settings
"""
