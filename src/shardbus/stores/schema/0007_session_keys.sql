-- The name of a session is the key of its id from now on, and not the id in one spelling: sessions
-- that differ in nothing else become one. keyed() and aside() are functions of the program.
CREATE TEMP TABLE unkeyed AS
SELECT id, local, keyed(name) AS name FROM session WHERE keyed(name) <> name;

CREATE TEMP TABLE spelling AS
SELECT id, local, name FROM unkeyed
UNION
SELECT session.id, session.local, session.name FROM unkeyed JOIN session
ON session.local = unkeyed.local AND session.name = unkeyed.name;

-- The one whose state was set last goes on. The states of the others are kept under names that are
-- no text, so that nobody asks for them.
CREATE TEMP TABLE chosen AS
SELECT id, local, name FROM (
    SELECT spelling.id, local, name, row_number() OVER (
        PARTITION BY local, name ORDER BY coalesce(set_at, -1) DESC, spelling.id) AS place
    FROM spelling LEFT JOIN session_state ON session = spelling.id)
WHERE place = 1;
CREATE UNIQUE INDEX temp.chosen_name ON chosen (local, name);

CREATE TEMP TABLE other AS
SELECT spelling.id, chosen.id AS chosen FROM spelling JOIN chosen USING (local, name)
WHERE spelling.id <> chosen.id;
CREATE UNIQUE INDEX temp.other_id ON other (id);

UPDATE session SET name = aside(name) WHERE id IN (SELECT id FROM other);
UPDATE session SET name = (SELECT name FROM chosen WHERE chosen.id = session.id)
WHERE id IN (SELECT id FROM chosen);

-- The triggers of `entry` keep the ranks, and remove what has neither messages nor a state.
UPDATE entry SET session = (SELECT chosen FROM other WHERE other.id = entry.session)
WHERE session IN (SELECT id FROM other);

DROP TABLE temp.other;
DROP TABLE temp.chosen;
DROP TABLE temp.spelling;
DROP TABLE temp.unkeyed;
