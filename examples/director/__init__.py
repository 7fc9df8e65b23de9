"""What the director of the demo needs, whatever the workflow is: processes, progress, the proof, the screen."""
