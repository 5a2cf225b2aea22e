"""Traces and metrics of jobs for collectors that speak OTLP. Imported only if they are configured."""
