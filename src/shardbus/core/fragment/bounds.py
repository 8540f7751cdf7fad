"""The bounds of a fragment's memory as a value, so that a test can use smaller ones."""

from __future__ import annotations

from typing import final

from shardbus.core.limits import (
    ADMITTED_MAX,
    BITE_BYTES_MAX,
    BITE_COUNT_MAX,
    CHECKED_BYTES_MAX,
    CLAIM_RUNS_MAX,
    DUE_COUNT_MAX,
    LACKING_BYTES_MAX,
    LOCKS_MAX,
    PAGE_BYTES_MAX,
    PAGE_COUNT_MAX,
    PRODUCERS_MAX,
    REMEMBERED_MAX,
    SESSION_WINDOW_BYTES_MAX,
    SESSION_WINDOW_COUNT_MAX,
    SESSION_WINDOWS_BYTES_MAX,
    SESSIONS_HELD_MAX,
    SESSIONS_KNOWN_MAX,
    SESSIONS_PAGE_MAX,
    STAGE_PIECES_MAX,
    STAGES_MAX,
    STATES_MAX,
    TRANSFER_MARKS_MAX,
    WHOLE_BYTES_MAX,
    WHOLE_COUNT_MAX,
    WINDOW_BYTES_MAX,
    WINDOW_COUNT_LOW,
    WINDOW_COUNT_MAX,
)


@final
class Bounds:
    """How much one fragment may keep in memory and read at once; `limits` gives the reasons."""

    def __init__(  # noqa: PLR0913 - a record, all by keyword
        self,
        *,
        window_count_max: int = WINDOW_COUNT_MAX,
        window_bytes_max: int = WINDOW_BYTES_MAX,
        window_count_low: int = WINDOW_COUNT_LOW,
        page_count_max: int = PAGE_COUNT_MAX,
        page_bytes_max: int = PAGE_BYTES_MAX,
        lacking_bytes_max: int = LACKING_BYTES_MAX,
        due_count_max: int = DUE_COUNT_MAX,
        locks_max: int = LOCKS_MAX,
        sessions_held_max: int = SESSIONS_HELD_MAX,
        sessions_known_max: int = SESSIONS_KNOWN_MAX,
        sessions_page_max: int = SESSIONS_PAGE_MAX,
        session_window_count_max: int = SESSION_WINDOW_COUNT_MAX,
        session_window_bytes_max: int = SESSION_WINDOW_BYTES_MAX,
        session_windows_bytes_max: int = SESSION_WINDOWS_BYTES_MAX,
        states_max: int = STATES_MAX,
        remembered_max: int = REMEMBERED_MAX,
        claim_runs_max: int = CLAIM_RUNS_MAX,
        stages_max: int = STAGES_MAX,
        stage_pieces_max: int = STAGE_PIECES_MAX,
        whole_bytes_max: int = WHOLE_BYTES_MAX,
        whole_count_max: int = WHOLE_COUNT_MAX,
        bite_bytes_max: int = BITE_BYTES_MAX,
        bite_count_max: int = BITE_COUNT_MAX,
        checked_bytes_max: int = CHECKED_BYTES_MAX,
        admitted_max: int = ADMITTED_MAX,
        producers_max: int = PRODUCERS_MAX,
        transfer_marks_max: int = TRANSFER_MARKS_MAX,
    ) -> None:
        assert page_bytes_max <= window_bytes_max
        assert sessions_page_max <= sessions_known_max
        self.window_count_max = window_count_max
        self.window_bytes_max = window_bytes_max
        self.window_count_low = window_count_low
        self.page_count_max = page_count_max
        self.page_bytes_max = page_bytes_max
        self.lacking_bytes_max = lacking_bytes_max
        self.due_count_max = due_count_max
        self.locks_max = locks_max
        self.sessions_held_max = sessions_held_max
        self.sessions_known_max = sessions_known_max
        self.sessions_page_max = sessions_page_max
        self.session_window_count_max = session_window_count_max
        self.session_window_bytes_max = session_window_bytes_max
        self.session_windows_bytes_max = session_windows_bytes_max
        self.states_max = states_max
        self.remembered_max = remembered_max
        self.claim_runs_max = claim_runs_max
        self.stages_max = stages_max
        self.stage_pieces_max = stage_pieces_max
        self.whole_bytes_max = whole_bytes_max
        self.whole_count_max = whole_count_max
        self.bite_bytes_max = bite_bytes_max
        self.bite_count_max = bite_count_max
        self.checked_bytes_max = checked_bytes_max
        self.admitted_max = admitted_max
        self.producers_max = producers_max
        self.transfer_marks_max = transfer_marks_max
