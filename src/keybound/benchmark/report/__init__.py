"""What typesets: tables, figures and the HTML report, as pure functions of rows."""
