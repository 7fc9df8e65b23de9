"""A review of files as durable runs: one run a file, one board for all, one reviewer in another process.

    board       what is known of each file: models, and the store that holds them
    text        what can be said of a text: its measures, its broken links, its misspelled words; pure
    steps       the functions that a run calls as steps, each logging its own execution
    workflow    the workflow itself
    greedy      the same with a selector that reads too much, to see what that does
    reviewer    who gives the verdicts, in a process of their own
    report      the board as Markdown and as HTML; pure
    files       which files are reviewed, and the ids of their runs

`python examples/demo.py` plays it; `stepwell worker review.workflow`, in the folder `examples`, only drives it.
"""
