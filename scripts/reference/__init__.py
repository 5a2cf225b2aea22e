"""One module for each reference page that is made from the code; each has `page() -> str`."""
