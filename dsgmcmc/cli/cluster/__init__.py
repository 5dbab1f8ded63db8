"""Commands about the machines that a run is started on."""
