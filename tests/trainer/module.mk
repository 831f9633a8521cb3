# SPDX-License-Identifier: Apache-2.0
# make-fixture writes the model folder and the shards that the trainer's tests share. A test links fixture.a, or calls the program; it is
# not installed.
$(call library,fixture,tests/trainer/make_fixture_model.cc tests/trainer/make_fixture_data.cc,png)

$(eval $(call link_rule,make-fixture,tests/trainer/make_fixture_main.cc,fixture trainer_model common,,$(BUILD)/tests/make-fixture))
$(BUILD)/tests/make-fixture:
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	@$(CXX) $(LDFLAGS) $(filter %.o,$^) -Wl,--start-group $(LINK) -Wl,--end-group $(call flags_of,LIBS,$(PACKAGES)) -o $@
check check-unit check-cluster unit-tests: $(BUILD)/tests/make-fixture
