"""What other systems were reported to get wrong, and the tests that say that ours does not.

The numbers are those of the list of public reports that the project was given.
"""

from __future__ import annotations

from tests.chaos.scenarios import WEBHOOKS, Promise

_CONSUMER = "tests/models/test_consumer.py"
_RESCUE = "tests/models/test_rescue.py"
_UPKEEP = "tests/worker/test_upkeep.py"

REPORTS = (
    Promise(
        1,
        "trimming a stream leaves ghosts among the pending: only what is acknowledged is deleted",
        (f"{_CONSUMER}::test_what_is_acknowledged_is_gone",),
    ),
    Promise(2, "trimming deletes nothing", (f"{_CONSUMER}::test_what_is_acknowledged_is_gone",)),
    Promise(
        3,
        "acknowledged entries stay for ever",
        (
            f"{_CONSUMER}::test_what_is_acknowledged_is_gone",
            "tests/worker/test_publish.py::test_an_answer_is_stored_and_its_entry_and_lease_go",
        ),
    ),
    Promise(
        4,
        "an endless loop of NOGROUP once Redis has lost its data",
        (
            f"{_CONSUMER}::test_groups_come_back_after_redis_lost_everything",
            f"{_CONSUMER}::test_a_consumer_that_waits_while_redis_loses_everything_goes_on",
            "tests/worker/test_runtime.py::test_a_redis_that_comes_back_empty_loses_no_job",
        ),
    ),
    Promise(
        5,
        "the client's time-out is shorter than a read that blocks",
        (
            f"{_CONSUMER}::test_a_wait_without_work_ends_in_time_and_empty",
            "tests/chaos/test_idle_connections.py"
            "::test_a_worker_that_had_nothing_to_do_for_a_minute_takes_the_next_job",
        ),
    ),
    Promise(
        6,
        "who reclaims holds a lock, and dies with it",
        (
            f"{_UPKEEP}::test_entries_of_a_consumer_that_died_before_its_claim_are_published_anew",
            "tests/models/test_chore_lease.py::test_the_lease_of_a_process_that_died_runs_out",
        ),
    ),
    Promise(
        7,
        "in some set-up nobody looks for what the dead have read",
        (
            f"{_UPKEEP}::test_entries_of_a_consumer_that_died_before_its_claim_are_published_anew",
            "tests/worker/background/test_house.py::test_an_entry_of_a_dead_consumer_is_replaced",
        ),
    ),
    Promise(
        8,
        "a long job is delivered again while it runs",
        (
            "tests/worker/test_heartbeat.py::test_renews_the_lease_in_sql_and_the_idle_time_in_redis",
            "tests/chaos/test_frozen_worker.py"
            "::test_a_computation_that_holds_the_interpreter_keeps_its_lease",
        ),
    ),
    Promise(
        9,
        "two reclaim the same entry",
        (
            f"{_UPKEEP}::test_entries_that_somebody_keeps_alive_stay",
            "tests/models/test_lease.py::test_of_claims_at_the_same_moment_one_wins",
        ),
    ),
    Promise(
        10,
        "a worker looks alive and takes nothing after it was connected again",
        (
            "tests/worker/test_intake.py::test_goes_on_when_redis_is_back",
            "tests/api/test_health.py::test_stuck_jobs_are_named_until_somebody_takes_some",
        ),
    ),
    Promise(
        11,
        "what was fetched ahead is lost in a shutdown",
        (
            "tests/chaos/test_handover.py::test_a_window_that_is_still_open_goes_to_another_worker",
            "tests/worker/test_intake.py::test_entries_that_arrive_at_shutdown_are_given_back",
        ),
    ),
    Promise(
        12,
        "a job that waits for its time runs many times: times are in SQL",
        (
            "tests/models/test_dispatch.py::test_a_job_that_backs_off_is_left_alone",
            "tests/worker/background/test_schedule.py::test_a_doubled_message_is_harmless",
        ),
    ),
    Promise(
        13,
        "a window's timer dies with a connection",
        ("tests/worker/test_window_reader.py::test_a_broker_lost_within_a_window_takes_nothing_away",),
    ),
    Promise(
        14,
        "nobody knows what becomes of a window at shutdown",
        (
            "tests/worker/test_window_reader.py::test_closes_at_shutdown",
            "tests/chaos/test_handover.py::test_a_window_that_is_still_open_goes_to_another_worker",
        ),
    ),
    Promise(
        15,
        "what shall follow the last job does not come, or too early",
        (
            "tests/models/test_publication.py::test_a_batch_completes_when_its_last_two_jobs_end_at_once",
            "tests/chaos/test_last_two.py::test_the_last_two_complete_their_batch_once",
        ),
    ),
    Promise(
        16,
        "a job that kills its process comes back for ever",
        (
            "tests/chaos/test_answers.py::TestPoison",
            f"{_RESCUE}::test_one_of_32_fails_after_eight_crashes_and_the_others_succeed",
        ),
    ),
    Promise(
        17,
        "a job that was finished is marked abandoned",
        (
            "tests/models/test_move.py::test_only_legal_moves_are_made",
            f"{_RESCUE}::test_only_ones_own_leases_are_given_back_after_a_crash",
        ),
    ),
    Promise(
        18,
        "recovery fails jobs, or loses them",
        (
            f"{_RESCUE}::test_a_lease_that_ran_out_is_rescued_and_counts",
            "tests/chaos/test_worker_crash.py::test_another_worker_goes_on_where_a_killed_one_has_stopped",
        ),
    ),
    Promise(
        19,
        "jobs lie idle after Redis has restarted",
        (
            "tests/models/test_dispatch.py::test_after_redis_came_back_empty_everything_is_published_again",
            "tests/chaos/test_redis_outage.py::test_at_no_step_of_a_job_does_it_matter_that_redis_forgets",
        ),
    ),
    Promise(
        20,
        "a job whose lock was lost is completed twice",
        (
            "tests/models/test_publication.py::test_the_answer_of_a_worker_that_lost_the_job_is_discarded",
            "tests/chaos/test_frozen_worker.py::TestFrozen",
        ),
    ),
    Promise(
        21,
        "a job that is long counts as lost",
        (
            "tests/worker/test_heartbeat.py::test_renews_the_lease_in_sql_and_the_idle_time_in_redis",
            "tests/worker/test_heartbeat.py::test_lets_a_worker_live_that_is_between_steps",
        ),
    ),
    Promise(
        22,
        "jobs are running for months, and nobody is told",
        (
            "tests/models/test_watchdog.py::test_ages_are_those_of_the_oldest",
            f"{_UPKEEP}::test_jobs_that_their_worker_lost_sight_of_are_rescued_and_published",
        ),
    ),
    Promise(
        23,
        "a job is finished and failed at once",
        (
            "tests/models/test_publication.py::test_a_second_answer_is_discarded",
            "tests/models/test_move.py::test_whatever_happens_the_books_balance",
        ),
    ),
    Promise(
        24,
        "a name that is used again hides what its first owner has left",
        (
            "tests/chaos/test_worker_crash.py::test_another_worker_goes_on_where_a_killed_one_has_stopped",
            f"{_CONSUMER}::test_what_is_pending_under_a_name_that_is_gone_is_taken_over_at_once",
        ),
    ),
    Promise(
        25,
        "what heals the queue is stuck in the queue",
        (
            f"{_UPKEEP}::test_a_chore_that_cannot_be_done_does_not_hinder_the_others",
            "tests/worker/background/test_house.py::test_jobs_whose_lease_ran_out_go_back_to_the_queue",
        ),
    ),
    Promise(
        26,
        "two share a list of results, and each takes the other's",
        (
            "tests/worker/test_window_reader.py::test_two_readers_never_take_the_same_job",
            "tests/chaos/test_answers.py"
            "::test_an_answer_that_never_comes_is_asked_for_again_and_shifts_no_other",
        ),
    ),
    Promise(
        27,
        "a shutdown is reported as a cancel",
        (
            "tests/chaos/test_handover.py"
            "::test_what_an_engine_has_begun_goes_to_another_worker_and_burns_no_attempt",
            "tests/worker/test_worker_end.py::test_sigterm_gives_back_what_is_unfinished",
        ),
    ),
    Promise(
        28,
        "Redis evicts jobs or has no room for them",
        (
            "tests/api/test_health.py::test_a_redis_that_may_evict_the_queue_is_named_for_as_long_as_it_may",
            "tests/chaos/test_redis_outage.py::test_a_full_redis_is_as_good_as_none_until_there_is_room",
        ),
    ),
    Promise(
        29,
        "a reply that comes too late is read as that of the next command",
        (
            "tests/chaos/test_idle_connections.py::test_a_reply_that_comes_too_late_is_nobody_elses",
            "tests/api/test_jobs.py::test_the_job_of_another_project_does_not_exist",
        ),
    ),
    Promise(
        30,
        "answers stand under the keys of others",
        (
            "tests/chaos/test_answers.py"
            "::test_an_answer_that_never_comes_is_asked_for_again_and_shifts_no_other",
            "tests/worker/test_publish.py::test_answers_of_jobs_that_run_together_are_kept_apart",
        ),
    ),
    Promise(
        31,
        "NUL in a text spoils a whole batch",
        ("tests/chaos/test_answers.py::test_one_answer_that_no_database_can_hold_spoils_none_of_31",),
    ),
    Promise(32, "a webhook reaches where nobody should", later=WEBHOOKS),
    Promise(33, "a client sends somebody's .netrc along", later=WEBHOOKS),
    Promise(34, "those who host it themselves need targets inside", later=WEBHOOKS),
)
