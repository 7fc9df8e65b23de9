"""What every engine must do, whatever ledger it stands on; each host runs this class with its own fixture `world`."""

from __future__ import annotations

from .engine_cancel_contract import EngineCancelContract
from .engine_cases_contract import EngineCasesContract
from .engine_defer_contract import EngineDeferContract
from .engine_faults_contract import EngineFaultsContract
from .engine_outcomes_contract import EngineOutcomesContract


class EngineContract(
    EngineCancelContract, EngineCasesContract, EngineDeferContract, EngineFaultsContract, EngineOutcomesContract
):
    pass
