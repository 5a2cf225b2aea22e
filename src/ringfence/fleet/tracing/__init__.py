"""Traces of jobs, for collectors that speak OpenTelemetry's protocol. Imported only where asked for."""
