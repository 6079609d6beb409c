"""A sink that keeps a history: a file for each batch, and for each resolved mark a list of the files that it covers.

<root>/<lower>-<epoch>-<step>-<slice>-<count>-<topic>.data    one batch, as the encoder writes it
<root>/shapes/<topic>-<version>.json                          how to decode files of one version of a table
<root>/marks/<mark>.json                                      the previous mark, and the files in order
<root>/marks/<mark>.resolved                                  the mark, for consumers that see files only
"""
