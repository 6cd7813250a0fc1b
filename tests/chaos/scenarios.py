"""The scenarios of failure that `tests/chaos` is for, and the tests that hold us to what is right in each.

The numbers are those of the list that the project was given; a test is named by its file and its function or
class. What a later issue brings is said in words.
"""

from __future__ import annotations

from dataclasses import dataclass

WEBHOOKS = "issue 7 (webhooks)"


@dataclass(frozen=True, slots=True)
class Promise:
    """One thing that goes wrong, what is right then, and where that is tested."""

    number: int
    what: str
    tests: tuple[str, ...] = ()
    #: What brings the rest of it, or all of it.
    later: str | None = None


SCENARIOS = (
    Promise(
        1,
        "an API dies after its commit, before Redis knows",
        ("tests/chaos/test_accept_crash.py::test_a_job_whose_api_was_killed_is_there_once_or_not_at_all",),
    ),
    Promise(
        2,
        "an API dies before its commit",
        ("tests/chaos/test_accept_crash.py::test_a_job_whose_api_was_killed_is_there_once_or_not_at_all",),
    ),
    Promise(
        3,
        "the reply to XADD is lost",
        (
            "tests/chaos/test_lost_replies.py::test_an_entry_whose_reply_was_lost_is_not_added_twice",
            "tests/chaos/test_lost_replies.py::test_a_second_entry_of_a_job_is_dropped",
        ),
    ),
    Promise(
        4,
        "the reply to a read of entries is lost",
        (
            "tests/chaos/test_lost_replies.py"
            "::test_entries_whose_delivery_was_lost_come_again_and_the_others_go_on",
        ),
    ),
    *(
        Promise(
            number,
            what,
            ("tests/chaos/test_worker_crash.py::test_another_worker_goes_on_where_a_killed_one_has_stopped",),
        )
        for number, what in (
            (5, "a worker dies after its read, before the claim"),
            (6, "a worker dies after the claim, while it computes"),
            (7, "a worker dies after computing, before the commit"),
            (8, "a worker dies after the commit, before it acknowledges"),
        )
    ),
    Promise(
        9,
        "a worker is frozen past its leases and goes on",
        (
            "tests/chaos/test_frozen_worker.py::TestFrozen",
            "tests/worker/test_worker_end.py"
            "::test_a_worker_that_was_stopped_past_its_leases_answers_each_job_once",
        ),
    ),
    Promise(
        10,
        "a computation holds the interpreter past a lease",
        ("tests/chaos/test_frozen_worker.py::test_a_computation_that_holds_the_interpreter_keeps_its_lease",),
    ),
    Promise(
        11,
        "Redis restarts with its file",
        ("tests/chaos/test_redis_outage.py::test_a_restart_with_its_file_loses_nothing_and_doubles_nothing",),
    ),
    Promise(
        12,
        "Redis comes back empty",
        ("tests/chaos/test_redis_outage.py::test_at_no_step_of_a_job_does_it_matter_that_redis_forgets",),
    ),
    Promise(
        13,
        "Redis is away for a minute",
        ("tests/chaos/test_redis_outage.py::test_without_redis_jobs_are_accepted_finished_and_shown",),
    ),
    Promise(
        14,
        "Redis is full",
        (
            "tests/chaos/test_redis_outage.py::test_a_full_redis_is_as_good_as_none_until_there_is_room",
            "tests/api/test_health.py::test_a_full_redis_is_named_and_jobs_are_accepted",
        ),
    ),
    Promise(
        15,
        "Redis may evict keys",
        ("tests/api/test_health.py::test_a_redis_that_may_evict_the_queue_is_named_for_as_long_as_it_may",),
    ),
    Promise(
        16,
        "Redis answers slowly",
        ("tests/chaos/test_redis_outage.py::test_answers_do_not_wait_for_a_slow_redis",),
    ),
    Promise(
        17,
        "the database is away when a job comes in",
        (
            "tests/chaos/test_database_outage.py::test_what_cannot_be_stored_is_not_accepted",
            "tests/chaos/test_database_outage.py::test_a_database_lost_before_the_commit_leaves_nothing",
        ),
    ),
    Promise(
        18,
        "the database is away when a result is to be stored",
        (
            "tests/chaos/test_database_outage.py::test_a_result_that_cannot_be_stored_is_kept",
            "tests/worker/test_publish_outage.py::test_a_worker_that_stops_leaves_its_results_to_others",
        ),
    ),
    Promise(
        19,
        "a commit succeeds, and the reply that says so is lost",
        ("tests/chaos/test_lost_replies.py::TestCommit",),
    ),
    Promise(
        20,
        "two workers finish the last two jobs of a batch at once",
        ("tests/chaos/test_last_two.py::test_the_last_two_complete_their_batch_once",),
    ),
    Promise(
        21,
        "API, workers and background work write to SQLite at once",
        (
            "tests/models/test_database.py::test_four_processes_write_to_sqlite_without_losing_anything",
            "tests/models/test_database.py::test_a_new_file_that_another_process_writes_to_is_waited_for",
        ),
    ),
    Promise(
        22,
        "a request kills every process that computes it",
        (
            "tests/chaos/test_answers.py::TestPoison",
            "tests/worker/test_poison.py::test_one_poisonous_job_among_32_fails_and_the_others_succeed",
            "tests/models/test_rescue.py::test_one_of_32_fails_after_eight_crashes_and_the_others_succeed",
        ),
    ),
    Promise(
        23,
        "an answer holds NUL, a lone surrogate, or a logprob that is no number",
        (
            "tests/chaos/test_answers.py::test_one_answer_that_no_database_can_hold_spoils_none_of_31",
            "tests/worker/test_answer.py"
            "::test_what_no_database_and_no_client_can_carry_is_replaced_or_escaped",
            "tests/models/test_publication.py::test_a_result_that_cannot_be_stored_fails_its_job_alone",
            "tests/chaos/test_batch_files.py::test_the_contract_holds_whoever_is_killed",
        ),
    ),
    Promise(
        24,
        "an engine gives fewer or more answers than it was asked for, or in another order",
        (
            "tests/chaos/test_answers.py"
            "::test_an_answer_that_never_comes_is_asked_for_again_and_shifts_no_other",
            "tests/worker/test_publish.py"
            "::test_an_answer_that_the_engine_will_never_give_is_asked_for_again_and_fails_in_the_end",
            "tests/worker/test_publish.py::test_an_output_of_nobody_is_dropped",
            "tests/worker/test_publish.py"
            "::test_an_output_of_a_choice_that_was_not_asked_for_fails_its_job_alone",
            "tests/worker/test_publish.py::test_answers_of_jobs_that_run_together_are_kept_apart",
        ),
    ),
    Promise(
        25,
        "a job is cancelled while it is queued, running or done",
        (
            "tests/chaos/test_cancels.py::test_a_cancel_is_final_or_too_late",
            "tests/chaos/test_cancels.py::test_a_cancel_is_final_or_too_late_whatever_the_order",
            "tests/chaos/test_cancels.py"
            "::test_a_cancelled_job_leaves_the_engine_though_it_would_run_for_long",
        ),
    ),
    Promise(
        26,
        "a deadline passes while a job runs",
        (
            "tests/chaos/test_cancels.py::test_a_job_that_runs_past_its_deadline_expires",
            "tests/chaos/test_deadlines.py"
            "::test_a_job_whose_worker_is_lost_past_its_deadline_expires_once_and_a_late_answer_is_discarded",
            "tests/chaos/test_batch_files.py::test_the_contract_holds_whoever_is_killed",
        ),
    ),
    Promise(
        27,
        "the clock of a machine is an hour ahead or behind",
        (
            "tests/chaos/test_skewed_workers.py"
            "::test_workers_whose_clocks_are_wrong_lose_no_lease_and_expire_nothing",
            "tests/models/test_accept.py"
            "::test_a_deadline_in_seconds_counts_from_when_the_database_took_the_job",
            "tests/worker/background/test_house.py::test_a_clock_that_is_set_back_does_not_silence_beat",
        ),
        later=WEBHOOKS + ", for the timestamp of a delivery",
    ),
    Promise(
        28,
        "the clock of Redis is set back",
        (
            "tests/chaos/test_clocks.py::test_entries_keep_their_order_when_the_clock_of_redis_is_set_back",
            "tests/chaos/test_clocks.py::test_nothing_hangs_on_the_clock_of_redis",
        ),
    ),
    Promise(
        29,
        "a message of Celery is lost, or its broker forgets all of them",
        (
            "tests/worker/background/test_process.py"
            "::test_it_goes_on_when_redis_was_emptied_and_when_it_was_away",
            "tests/worker/background/test_schedule.py"
            "::test_a_chore_that_cannot_be_done_is_left_for_the_next_period",
        ),
        later=WEBHOOKS + ", for deliveries that are due",
    ),
    Promise(
        30,
        "a message of Celery comes twice",
        (
            "tests/worker/background/test_schedule.py::test_a_doubled_message_is_harmless",
            "tests/worker/background/test_schedule.py"
            "::test_a_message_that_comes_while_the_chore_is_done_is_harmless",
            "tests/worker/background/test_process.py::test_two_processes_share_the_chores_and_one_is_enough",
        ),
        later=WEBHOOKS + ", for deliveries",
    ),
    Promise(31, "a receiver of webhooks is slow", later=WEBHOOKS),
    Promise(32, "a receiver answers 500, 429, 410 or 301", later=WEBHOOKS),
    Promise(33, "a receiver answers without end, or with a bomb", later=WEBHOOKS),
    Promise(34, "a name leads elsewhere once it was checked", later=WEBHOOKS),
    Promise(35, "a sender dies after it has delivered", later=WEBHOOKS),
    Promise(36, "an endpoint goes, or its secret, between two tries", later=WEBHOOKS),
    Promise(
        37,
        "a worker is told to stop with a window half full, or with jobs in the engine",
        (
            "tests/chaos/test_handover.py::test_a_window_that_is_still_open_goes_to_another_worker",
            "tests/chaos/test_handover.py"
            "::test_what_an_engine_has_begun_goes_to_another_worker_and_burns_no_attempt",
            "tests/chaos/test_handover.py::test_what_an_engine_ends_in_time_stays_with_its_worker",
            "tests/worker/test_worker_end.py::test_sigterm_gives_back_what_is_unfinished",
            "tests/chaos/test_pickup.py::test_it_is_taken_up_soon",
        ),
    ),
    Promise(
        38,
        "two are started on one data folder",
        (
            "tests/acceptance/test_supervision.py::test_a_second_one_on_the_same_folder_is_refused",
            "tests/cli/test_instance_lock.py::test_a_second_holder_is_told_who_the_first_is",
            "tests/cli/test_valkey.py"
            "::test_the_folder_stays_locked_until_the_valkey_of_a_killed_headrace_is_gone",
        ),
    ),
    Promise(
        39,
        "one project hands in 100,000 jobs and another one ten",
        (
            "tests/chaos/test_fairness.py::test_ten_jobs_beside_a_backlog_are_served_within_a_few_windows",
            "tests/chaos/test_fairness.py::TestMany",
            "tests/models/test_fairness.py::test_while_both_wait_neither_is_far_ahead",
        ),
    ),
    Promise(
        40,
        "workers of two versions run beside each other",
        (
            "tests/chaos/test_upgrade.py::test_a_running_worker_goes_on_while_the_others_become_newer",
            "tests/models/test_queue.py::test_whatever_an_entry_holds_a_ticket_can_be_read",
            "tests/models/test_migrate.py::test_a_database_of_another_version_is_not_ready",
        ),
    ),
)
