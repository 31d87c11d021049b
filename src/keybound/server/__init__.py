"""The public detector as an HTTP service, and its page. Needs the extra serve; knows no keys."""
