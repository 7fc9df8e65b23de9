"""What every engine must do, whatever ledger it stands on; each host runs this class with its own fixture `world`."""

from __future__ import annotations

from .engine_cases_contract import EngineCasesContract
from .engine_faults_contract import EngineFaultsContract
from .engine_outcomes_contract import EngineOutcomesContract


class EngineContract(EngineCasesContract, EngineFaultsContract, EngineOutcomesContract):
    pass
