"""The command line: verbs, messages, plots. Imports anything; no room imports it."""
