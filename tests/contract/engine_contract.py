"""What every engine must do, whatever ledger it stands on; each host runs this class with its own fixture `world`."""

from __future__ import annotations

from .engine_cancel_contract import EngineCancelContract
from .engine_cases_contract import EngineCasesContract
from .engine_changed_contract import EngineChangedContract
from .engine_defer_contract import EngineDeferContract
from .engine_faults_contract import EngineFaultsContract
from .engine_forms_contract import EngineFormsContract
from .engine_odd_contract import EngineOddContract
from .engine_outcomes_contract import EngineOutcomesContract
from .engine_queries_contract import EngineQueriesContract
from .engine_race_contract import EngineRaceContract
from .engine_reads_contract import EngineReadsContract
from .engine_recovery_contract import EngineRecoveryContract
from .engine_signals_contract import EngineSignalsContract
from .engine_steps_contract import EngineStepsContract
from .engine_threads_contract import EngineThreadsContract
from .engine_waits_contract import EngineWaitsContract


class EngineContract(
    EngineCancelContract,
    EngineCasesContract,
    EngineChangedContract,
    EngineDeferContract,
    EngineFaultsContract,
    EngineFormsContract,
    EngineOddContract,
    EngineOutcomesContract,
    EngineQueriesContract,
    EngineRaceContract,
    EngineReadsContract,
    EngineRecoveryContract,
    EngineSignalsContract,
    EngineStepsContract,
    EngineThreadsContract,
    EngineWaitsContract,
):
    pass
