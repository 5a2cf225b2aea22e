"""What each role is asked, one text each; `{{briefing}}` and `{{answer}}` stand for what differs from turn to turn."""
