"""Workers: processes that take jobs from the durable engine and run them."""
