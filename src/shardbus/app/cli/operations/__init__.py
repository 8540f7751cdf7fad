"""Commands for operators: processes, backups, checks, certificates, fragments."""
