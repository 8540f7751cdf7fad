"""The web portal: files that browsers load and run. They use the JSON API and nothing else."""
