"""The command line: verbs, how it speaks and draws. Imports anything; nobody imports it."""
