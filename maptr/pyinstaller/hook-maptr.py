"""What PyInstaller cannot see: the data files, commands that are imported by name, and entry points of the package."""

from PyInstaller.utils.hooks import collect_data_files, collect_submodules, copy_metadata

LEFT_OUT = ("maptr.pytest_plugin", "maptr.pyinstaller")

datas = collect_data_files("maptr") + copy_metadata("maptr")
hiddenimports = collect_submodules("maptr", filter=lambda name: name not in LEFT_OUT)
