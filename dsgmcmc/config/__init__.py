"""What a run and its job are told: settings from files and options, checked once. Reads no ratings, starts nothing.

Importing the room loads nothing: `units` serves commands that do not sample.
"""
