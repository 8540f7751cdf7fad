-- Payloads of a piece that are kept beside it are parts, with the piece as their one user, until
-- publishing makes chunks of them without touching a byte. The JSON list of these parts.
ALTER TABLE stage ADD COLUMN parts TEXT NOT NULL DEFAULT '[]';
