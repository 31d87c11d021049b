"""What measures: a plan of suites, methods and speech in, one row for each measurement out."""
