"""The server, access rules, jobs, pipelines and backups in the JSON API, for operators."""
