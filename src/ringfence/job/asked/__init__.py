"""What a run is asked, by the settings: from a configuration to requests that have nothing left to look up."""
